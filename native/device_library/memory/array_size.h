/*
 * How much memory an array takes.
 */
#ifndef KS_ARRAY_SIZE_H
#define KS_ARRAY_SIZE_H

#include "driver.h"

/* Bytes of an array by its description, for a driver that does not tell. `levels`: of a mipmap,
 * else
 * 1. UINT64_MAX on overflow. */
uint64_t ks_array_bytes(const struct ks_array_3d *description, unsigned int levels);

#endif
