/*
 * The probe's commands, which stand in several files.
 */
#ifndef PROBE_H
#define PROBE_H

struct command {
    const char *name; /* NULL ends a list */
    int arguments;
    int (*run)(char **words); /* not 0: the program ends */
};

/* Every way to hold memory (probe_memory.c). */
extern const struct command memory_commands[];

/* Prints a line with the driver's code and the time. */
int answer(int result);

#endif
