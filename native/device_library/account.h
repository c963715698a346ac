/*
 * The account of GPU memory that the processes of a session keep together.
 */
#ifndef KS_ACCOUNT_H
#define KS_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#define KS_NO_LIMIT UINT64_MAX

/* Takes this process's slot, if one is left. Who reads the file from outside knows by its record
 * lock that the library is in the process, so that is done before the driver knows of it. */
void ks_account_join(void);

/* Charges bytes to this process, unless the session would then hold more than
 * `limit`; false then, and nothing is changed. Bytes count in whole units of
 * KS_MEMORY_UNIT: of an amount a begun one, of a limit only full ones. */
bool ks_account_charge(unsigned cell, uint64_t bytes, uint64_t limit);

/* Gives back bytes that were charged. */
void ks_account_give_back(unsigned cell, uint64_t bytes);

/* Bytes that the living processes of the session hold on a cell; UINT64_MAX where that cannot be
 * known. */
uint64_t ks_account_charged(unsigned cell);

/* What a process of the session has on a cell; its pid as it sees itself. */
struct ks_process_use {
    uint32_t pid;
    uint64_t bytes;
};

/* Fills `uses` with the living processes that have memory or have launched on a
 * cell, at most `room` of them. Gives how many there are; 0 where the account
 * cannot be read. */
unsigned ks_account_processes(unsigned cell, struct ks_process_use *uses, unsigned room);

/* Shows the number of launches since the process started to who reads the counters. */
void ks_account_show_launches(unsigned cell, uint64_t launches);

#endif
