/* The message digest MD2 (RFC 1319), and HMAC (RFC 2104) with it. */
#ifndef FAKEGPU_MD2_H
#define FAKEGPU_MD2_H

#include <stddef.h>
#include <stdint.h>

#define MD2_BYTES 16u

struct md2 {
    uint8_t state[3 * MD2_BYTES];
    uint8_t checksum[MD2_BYTES];
    uint8_t block[MD2_BYTES]; /* what came since the last whole block */
    size_t length;            /* of that */
};

/** HMAC of what md2_add() is given between these two; a key is as long as a block. */
void md2_hmac_begin(struct md2 *md2, const uint8_t key[MD2_BYTES]);
void md2_hmac_end(struct md2 *md2, const uint8_t key[MD2_BYTES], uint8_t result[MD2_BYTES]);

void md2_add(struct md2 *md2, const void *data, size_t bytes);

#endif
