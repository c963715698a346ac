/*
 * Maps NVML's handle of a GPU to the session's cell.
 */
#ifndef KS_NVML_CELL_H
#define KS_NVML_CELL_H

#include "driver.h"

/* The cell of a GPU; KS_NO_CELL if it is not in the session, or there is no session. */
int ks_nvml_cell(nvmlDevice_t device);

#endif
