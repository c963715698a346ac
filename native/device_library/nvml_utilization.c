/*
 * How busy a GPU is: a session sees only its own share of the GPU's time.
 *
 * While the session has the GPU to itself its gate stays open when it does nothing, and the whole
 * GPU's figure is its own. So the answer is the smaller of the two.
 */
#include "lookup/real.h"
#include "nvml_cell.h"
#include "session.h"
#include "system.h"

#include "kubeshare_wire.h"

#include <stdatomic.h>

#define SQUARINGS 6
#define PERCENT   100

/* e to the power of -elapsed / KS_USE_TAU_NS, within 0.003; libm may not be linked. */
static double decay(uint64_t elapsed_ns) {
    double left = 1.0 - (double)elapsed_ns / KS_USE_TAU_NS / (1 << SQUARINGS);
    if (left < 0)
        return 0;
    for (int i = 0; i < SQUARINGS; i++)
        left *= left;
    return left;
}

/* The session's share of the GPU's time by now, in percent. */
static unsigned own_percent(unsigned cell, const struct ks_page_extension *extension) {
    const uint64_t at_ns = atomic_load((const _Atomic uint64_t *)&extension->used_at_ns);
    const double share = atomic_load((const atomic_uint *)&extension->used_micros) / 1e6;
    const uint32_t gate = atomic_load((const atomic_uint *)&ks_session_cell(cell)->gate_state);
    const uint64_t now = (uint64_t)ks_now();
    const double left = decay(now > at_ns ? now - at_ns : 0);
    const double used = gate == KS_GATE_CLOSED ? share * left : 1 - (1 - share) * left;
    return (unsigned)(used * PERCENT + 0.5);
}

int nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
    const nvmlReturn_t result = KS_REAL(nvmlDeviceGetUtilizationRates)(device, utilization);
    const int cell = result == NVML_SUCCESS ? ks_nvml_cell(device) : KS_NO_CELL;
    const struct ks_page_extension *extension =
        cell != KS_NO_CELL ? ks_session_extension((unsigned)cell) : NULL;
    if (extension == NULL)
        return result;
    const unsigned own = own_percent((unsigned)cell, extension);
    if (own < utilization->gpu)
        utilization->gpu = own;
    if (own < utilization->memory)
        utilization->memory = own; /* while its kernels run, at most */
    return result;
}
