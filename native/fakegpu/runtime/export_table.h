/* What the export tables have in common with the answers that some of their functions give. */
#ifndef FAKEGPU_EXPORT_TABLE_H
#define FAKEGPU_EXPORT_TABLE_H

#include "../cuda/driver.h"

typedef void (*table_entry)(void);

/** The tables whose addresses the runtime's check of the driver covers. */
extern table_entry runtime_table[], check_table[];

/** Answers the runtime's question whether this is the driver that it knows. */
CUresult check_driver(uint32_t version, uint64_t unix_seconds, uint8_t result[16]);

#endif
