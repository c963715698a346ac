/*
 * What the fake machine is made of: read from a text file of `key = value`
 * lines, or from a name such as V100x4 (four GPUs of a model known here).
 *
 *   model = V100          a model known here; what follows overrides it
 *   count = 4             GPUs, 1 to 16
 *   name = Tesla …        as NVML and cuDeviceGetName report it
 *   memory = 16384        of each GPU, in MiB
 *   model.2 = V100-PCIE   the model of GPU 2 alone, before its links; so name.2 and memory.2
 *   kernel_us = 10        time of a kernel that does not give its own
 *   context_memory = 300  that a context takes, in MiB; 0 unless said
 *   module_memory = 2     that a module's code takes, in MiB; 0 unless said
 *   stream_memory = 2     that each stream takes which a program creates, in MiB; 0 unless said
 *   speed.host = 12000    of copies from and to the host, in MB/s; 0: they take no time
 *   speed.copy = 370000   of copies within a GPU
 *   speed.fill = 750000   of fills
 *   speed.NV = 24000      between GPUs, over each NVLink
 *   speed.PIX = 12500     between GPUs that have none, by their PCI path: also PXB, PHB, NODE, SYS
 *   driver_version = 615  the driver's branch, from 525: what newer ones brought is not there
 *   compute_mode = default   or exclusive_process, prohibited: as NVML reports it
 *   mps = 0               1: every process is a client of an MPS server
 *   mig.0 = 0             MIG devices that GPU 0 is cut into, up to 7
 *   hardware_queues = 8   of a process, 1 to 32: streams take them in turn, kernels of different
 *                         queues run side by side; 0, unless said: one queue, which only kernels
 *                         stand in; $CUDA_DEVICE_MAX_CONNECTIONS overrides any but 0
 *   sync_us = 0           that every synchronisation takes longer
 *   cost.launch = 3       that a launch takes its thread, in microseconds; 0 unless said
 *   cost.event_record = 2 likewise; so cost.event_query, cost.context_retain
 *   lock.launch = context  what the call keeps other threads from meanwhile: such calls in the same
 *                         context, or with `process` in any; `none` unless said; so for the others
 *   fault.0.xid = 79      an error of GPU 0 (13, 31, 48, 63, 64, 79, …) …
 *   fault.0.after_ms = 50 … this long after the first process came to it
 *   fault.0.allocation = 9  the ninth allocation on GPU 0 fails: out of memory
 *   fault.0.memory = 4096  GPU 0 gives out no more than this, in MiB, whatever it reports as free
 *   seed = a              UUIDs follow from model, index and seed
 *   state = DIR           the state folder, relative to this file
 *   link = SYS            of every pair: NV1 to NV18, PIX, PXB, PHB, NODE or SYS
 *   link.0.1 = NV2        of one pair
 *   nvswitch = 0          1: all NVLinks lead to switches that join all GPUs, as with link = NV12
 *   pci.0.1 = PIX         the PCI path of one pair that also has NVLink
 *   numa.2 = 1            the NUMA node of one GPU
 *   cpus.1 = 20-39        the CPUs of one NUMA node
 *
 * `#` begins a comment. An unknown key is an error: a typing mistake must not
 * become another machine.
 */
#ifndef FAKEGPU_PROFILE_H
#define FAKEGPU_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "state.h"

/* How near two GPUs are by PCI, nearest first, with NVML's numbers. */
enum path {
    PATH_INTERNAL = 0,
    PATH_PIX = 10,
    PATH_PXB = 20,
    PATH_PHB = 30,
    PATH_NODE = 40,
    PATH_SYS = 50,
};

#define NUMA_NODES_MAX 8u
#define MIGS_MAX       7u /* MIG devices of one GPU */

/* How fast bytes move, in MB/s; 0: at once. */
struct speeds {
    uint32_t host, copy, fill, nvlink;
    uint32_t path[PATH_SYS / 10 + 1]; /* by enum path / 10 */
};

enum call_lock { LOCK_NONE, LOCK_CONTEXT, LOCK_PROCESS };

/* What a call takes its thread, in microseconds, and the lock that it holds meanwhile. */
struct cost {
    uint32_t time_us;
    enum call_lock lock;
};

struct costs {
    struct cost launch, event_record, event_query, context_retain;
};

struct model {
    const char *key; /* as profiles name it */
    char name[96];
    uint64_t memory_bytes;
    int compute_major, compute_minor;
    int multiprocessors;
    int clock_khz, memory_clock_khz, memory_bus_bits, l2_bytes;
    int shared_bytes, block_shared_bytes; /* of a multiprocessor; of a block that asks for more */
    unsigned pci_device_id;               /* device << 16 | vendor */
    bool nvlink;                          /* of a NAMExN machine */
};

/* What goes wrong with a GPU, and when; 0: nothing does. */
struct fault {
    uint32_t xid, after_ms;
    uint32_t allocation; /* the number of the one that fails */
    uint32_t memory;     /* MiB that can be had */
};

struct profile {
    struct model models[GPUS_MAX]; /* by GPU */
    unsigned gpus;
    uint32_t kernel_us;
    uint32_t hardware_queues;
    uint32_t sync_us;
    uint32_t driver_version; /* the branch */
    uint32_t mps;
    uint32_t nvswitch;
    uint32_t compute_mode; /* NVML's number */
    uint32_t migs[GPUS_MAX];
    struct speeds speeds;
    struct costs costs;
    struct fault faults[GPUS_MAX];
    uint64_t context_mib, module_mib, stream_mib;
    char seed[64];
    char state[4096]; /* folder; "" when the profile names none */
    enum path path[GPUS_MAX][GPUS_MAX];
    uint8_t nvlinks[GPUS_MAX][GPUS_MAX];
    uint8_t numa[GPUS_MAX];
    char cpus[NUMA_NODES_MAX][64];
};

/**
 * Reads the profile that the environment chooses: $FAKEGPU_PROFILE (a file, or
 * NAMExN), else `fakegpu.profile` beside the library at `library_path`, else
 * V100x1. $FAKEGPU_SEED overrides the seed. Returns false with a sentence in
 * `error` when it cannot.
 */
bool profile_choose(struct profile *profile, const char *library_path, char *error, size_t size);

/** Reads one profile: a path if it has a '/' or is a file, else NAMExN. */
bool profile_read(struct profile *profile, const char *source, char *error, size_t size);

/** The models known by name; the last entry's key is NULL. */
const struct model *profile_models(void);

/** The UUID of a GPU: 16 bytes that follow from model, index and seed. */
void profile_uuid(const struct profile *profile, unsigned gpu, uint8_t uuid[16]);

/** The UUID of one of a GPU's MIG devices, MIG-xxxxxxxx-… */
void profile_mig_text(const struct profile *profile, unsigned gpu, unsigned mig, char text[48]);

/** GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx */
void profile_uuid_text(const struct profile *profile, unsigned gpu, char text[48]);

/** The PCI bus number of a GPU (domain 0, device 0). */
unsigned profile_pci_bus(unsigned gpu);

/** A number that differs when the machines differ. */
uint64_t profile_hash(const struct profile *profile);

#endif
