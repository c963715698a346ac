/*
 * Things of the program that graphs keep alive: each graph and each executable
 * one has references, and the last one to go has the program's own function
 * called, by a thread of the driver.
 */
#ifndef FAKEGPU_USER_OBJECT_H
#define FAKEGPU_USER_OBJECT_H

#include "driver.h"

struct user_reference {
    CUuserObject object;
    unsigned count;
    struct user_reference *next;
};

/* ---- with graphs_lock held, or on a list that no other thread knows ---- */

/** As many references more; false when there is no memory. */
bool user_references_copy(struct user_reference **to, const struct user_reference *from);

/** Gives all references of a list back. */
void user_references_end(struct user_reference **list);

#endif
