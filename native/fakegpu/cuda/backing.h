/*
 * Memory that several mappings or several processes see: ranges of a file that
 * lives in memory. A file that leaves the process begins with a page that
 * describes it for the process that gets the descriptor.
 */
#ifndef FAKEGPU_BACKING_H
#define FAKEGPU_BACKING_H

#include "driver.h"

#define BACKING_PAGE UINT64_C(4096) /* the header has one to itself */

enum backing_kind { BACKING_PHYSICAL = 1, BACKING_POOL };

struct backing_header {
    uint64_t magic;
    uint32_t kind;
    char uuid[48]; /* of the GPU; "" when the memory is the host's */
    uint64_t bytes;
    union {
        CUmemAllocationProp physical;
        CUmemPoolProps pool;
    } properties;
};

struct backing {
    int fd;
    uint64_t end; /* ranges are given out from here on; none is used twice */
};

/** Makes a file; with a header where it is to leave the process. False when it cannot. */
bool backing_make(struct backing *backing, const struct backing_header *header);

/** Reads the header of a descriptor that came from elsewhere; false when it is none of ours. */
bool backing_read(int fd, enum backing_kind kind, struct backing_header *header);

/** The GPU of a header among those that this process sees, or NULL. */
struct device *backing_device(const struct backing_header *header);

/** A range of a file; false when there is no room. */
bool backing_take(struct backing *backing, uint64_t bytes, uint64_t *offset);

/** Gives the pages of a range back to the machine. */
void backing_give(const struct backing *backing, uint64_t offset, uint64_t bytes);

/** Maps a range, at `where` unless that is 0; 0 when it cannot. */
uint64_t backing_map(int fd, uint64_t offset, uint64_t bytes, uint64_t where);

#endif
