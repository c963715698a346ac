/*
 * The claim of this process: the page that says what it may use of which GPUs.
 */
#ifndef KS_SESSION_H
#define KS_SESSION_H

#include "driver.h"

#include "kubeshare_wire.h"

#include <stdbool.h>

enum { KS_NO_CELL = -1 };

/* Finds and maps the page and the account of memory, once. False: there is no
 * claim that may be used, and no GPU may be. */
bool ks_session_open(void);

/* Whether ks_session_open() has succeeded in this process. */
bool ks_session_is_open(void);

/* Whether the grant was taken back: nothing is launched or allocated any more. */
bool ks_session_is_revoked(void);

/* Number of cells (GPUs) of the claim. */
unsigned ks_session_cells(void);

/* Cell `index` of the page, which the daemon changes at any time. */
const struct ks_page_cell *ks_session_cell(unsigned index);

/* Bytes of GPU memory that the claim's processes may hold together on a cell. */
uint64_t ks_session_memory_limit(unsigned cell);

/* Bytes of it that the driver needs for contexts and code, as the node agent sees it. */
uint64_t ks_session_overhead(unsigned cell);

/* The cell of a GPU by UUID, or KS_NO_CELL. */
int ks_session_cell_of_uuid(const unsigned char uuid[16]);

/* A number that is the same for all processes of the claim and differs between claims. */
uint64_t ks_session_number(void);

/* Connects to the daemon of the claim; the descriptor, or -1. */
int ks_session_connect(void);

#endif
