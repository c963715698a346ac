/*
 * Compares names without libc: a sanitizer calls dlsym before its own strcmp works.
 */
#ifndef KS_TEXT_H
#define KS_TEXT_H

#include <stdbool.h>

static inline bool ks_begins(const char *text, const char *beginning) {
    while (*beginning != 0 && *text == *beginning) {
        text++;
        beginning++;
    }
    return *beginning == 0;
}

static inline bool ks_is_same(const char *left, const char *right) {
    while (*left != 0 && *left == *right) {
        left++;
        right++;
    }
    return *left == *right;
}

#endif
