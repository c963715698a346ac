/*
 * The session of this process: the page with what it may use of which GPUs.
 */
#ifndef KS_SESSION_H
#define KS_SESSION_H

#include "driver.h"

#include "kubeshare_wire.h"

#include <stdbool.h>

enum { KS_NO_CELL = -1 };

/* Finds and maps the page and the file of counters, once. False: there is no session, or its grant
 * is not active, and no GPU may be used. */
bool ks_session_open(void);

/* Whether ks_session_open() has succeeded in this process. */
bool ks_session_is_open(void);

/* Whether the grant was revoked: no further launch or allocation is permitted. */
bool ks_session_is_revoked(void);

/* Number of cells (GPUs) of the session. */
unsigned ks_session_cells(void);

/* Cell `index` of the page. The daemon may change it at any time. */
const struct ks_page_cell *ks_session_cell(unsigned index);

/* What the page has of a cell beyond that; NULL if an earlier daemon wrote it. */
const struct ks_page_extension *ks_session_extension(unsigned index);

/* Bytes of GPU memory that the session's processes may hold together on a cell. */
uint64_t ks_session_memory_limit(unsigned cell);

/* Whether the limits of all sessions on a cell's GPU may exceed its memory. */
bool ks_session_is_oversubscribed(unsigned cell);

/* Bytes of it that the driver takes for contexts and code, as the node agent measures it. */
uint64_t ks_session_overhead(unsigned cell);

/* The cell of a GPU by UUID, or KS_NO_CELL. */
int ks_session_cell_of_uuid(const unsigned char uuid[16]);

/* A number that all processes of the session share and no other session has. */
uint64_t ks_session_number(void);

/* Connects to the daemon of the session; returns the descriptor, or -1. */
int ks_session_connect(void);

#endif
