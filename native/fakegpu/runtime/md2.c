/* MD2 as RFC 1319 describes it: cryptographic libraries have dropped it, and the CUDA runtime asks
 * for it. */
#include "md2.h"

#include <string.h>

#define ROUNDS 18u

/* RFC 1319, 3.2: a permutation of all bytes, from the digits of pi. */
static const uint8_t substitution[256] = {
    41,  46,  67,  201, 162, 216, 124, 1,   61,  54,  84,  161, 236, 240, 6,   19,  98,  167, 5,
    243, 192, 199, 115, 140, 152, 147, 43,  217, 188, 76,  130, 202, 30,  155, 87,  60,  253, 212,
    224, 22,  103, 66,  111, 24,  138, 23,  229, 18,  190, 78,  196, 214, 218, 158, 222, 73,  160,
    251, 245, 142, 187, 47,  238, 122, 169, 104, 121, 145, 21,  178, 7,   63,  148, 194, 16,  137,
    11,  34,  95,  33,  128, 127, 93,  154, 90,  144, 50,  39,  53,  62,  204, 231, 191, 247, 151,
    3,   255, 25,  48,  179, 72,  165, 181, 209, 215, 94,  146, 42,  172, 86,  170, 198, 79,  184,
    56,  210, 150, 164, 125, 182, 118, 252, 107, 226, 156, 116, 4,   241, 69,  157, 112, 89,  100,
    113, 135, 32,  134, 91,  207, 101, 230, 45,  168, 2,   27,  96,  37,  173, 174, 176, 185, 246,
    28,  70,  97,  105, 52,  64,  126, 15,  85,  71,  163, 35,  221, 81,  175, 58,  195, 92,  249,
    206, 186, 197, 234, 38,  44,  83,  13,  110, 133, 40,  132, 9,   211, 223, 205, 244, 65,  129,
    77,  82,  106, 220, 55,  200, 108, 193, 171, 250, 36,  225, 123, 8,   12,  189, 177, 74,  120,
    136, 149, 139, 227, 99,  232, 109, 233, 203, 213, 254, 59,  0,   29,  57,  242, 239, 183, 14,
    102, 88,  208, 228, 166, 119, 114, 248, 235, 117, 75,  10,  49,  68,  80,  180, 143, 237, 31,
    26,  219, 153, 141, 51,  159, 17,  131, 20,
};

static void update_checksum(struct md2 *md2) {
    uint8_t last = md2->checksum[MD2_BYTES - 1];
    for (unsigned i = 0; i < MD2_BYTES; i++) {
        md2->checksum[i] ^= substitution[md2->block[i] ^ last];
        last = md2->checksum[i];
    }
}

static void mix(struct md2 *md2) {
    uint8_t carried = 0;
    for (unsigned i = 0; i < MD2_BYTES; i++) {
        md2->state[MD2_BYTES + i] = md2->block[i];
        md2->state[2 * MD2_BYTES + i] = md2->block[i] ^ md2->state[i];
    }
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < sizeof md2->state; i++)
            carried = md2->state[i] ^= substitution[carried];
        carried = (uint8_t)(carried + round);
    }
}

static void add_masked(struct md2 *md2, const uint8_t *data, size_t bytes, uint8_t mask) {
    for (size_t i = 0; i < bytes; i++) {
        md2->block[md2->length++] = data[i] ^ mask;
        if (md2->length == MD2_BYTES) {
            update_checksum(md2);
            mix(md2);
            md2->length = 0;
        }
    }
}

void md2_add(struct md2 *md2, const void *data, size_t bytes) {
    add_masked(md2, data, bytes, 0);
}

static void finish(struct md2 *md2, uint8_t result[MD2_BYTES]) {
    uint8_t padding[MD2_BYTES];
    size_t missing = MD2_BYTES - md2->length;
    memset(padding, (int)missing, missing);
    md2_add(md2, padding, missing);
    memcpy(md2->block, md2->checksum, MD2_BYTES);
    mix(md2);
    memcpy(result, md2->state, MD2_BYTES);
}

void md2_hmac_begin(struct md2 *md2, const uint8_t key[MD2_BYTES]) {
    *md2 = (struct md2){0};
    add_masked(md2, key, MD2_BYTES, 0x36);
}

void md2_hmac_end(struct md2 *md2, const uint8_t key[MD2_BYTES], uint8_t result[MD2_BYTES]) {
    uint8_t inner[MD2_BYTES];
    finish(md2, inner);
    *md2 = (struct md2){0};
    add_masked(md2, key, MD2_BYTES, 0x5c);
    md2_add(md2, inner, sizeof inner);
    finish(md2, result);
}
