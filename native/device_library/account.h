/*
 * The account of GPU memory that the processes of a session share.
 */
#ifndef KS_ACCOUNT_H
#define KS_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#define KS_NO_LIMIT UINT64_MAX

/* Takes a slot for this process, if one is left. Its record lock shows readers of the file that the
 * library is in the process, so this happens before the process is known to the driver. */
void ks_account_join(void);

/* Charges bytes to this process; false, without a change, if the session would then hold more than
 * `limit`. Bytes count in units of KS_MEMORY_UNIT: an amount is rounded up, a limit down. */
bool ks_account_charge(unsigned cell, uint64_t bytes, uint64_t limit);

/* Gives back bytes that were charged. */
void ks_account_give_back(unsigned cell, uint64_t bytes);

/* Counts bytes of the host that this process has pinned, or counts them no longer; no limit
 * applies. False: it has no slot to count them in. */
bool ks_account_pin(uint64_t bytes);
void ks_account_unpin(uint64_t bytes);

/* Counts charged bytes that managed memory serves, because the GPU had none left, or no longer. */
void ks_account_spill(uint64_t bytes);
void ks_account_unspill(uint64_t bytes);

/* Bytes that the living processes of the session hold on a cell; UINT64_MAX if the file cannot be
 * locked. */
uint64_t ks_account_charged(unsigned cell);

/* What a process of the session holds on a cell; its pid in its own namespace. */
struct ks_process_use {
    uint32_t pid;
    uint64_t bytes;
};

/* Fills `uses` with at most `room` of the living processes that hold memory or have launched on a
 * cell. Returns how many there are; 0 if the account cannot be read. */
unsigned ks_account_processes(unsigned cell, struct ks_process_use *uses, unsigned room);

/* Writes the number of launches since the process started into the counters, for their readers. */
void ks_account_show_launches(unsigned cell, uint64_t launches);

#endif
