/* The text of a profile. */
#ifndef FAKEGPU_TEXT_H
#define FAKEGPU_TEXT_H

#include <stdio.h>

#include "profile.h"

/** Reads the lines of a profile; false with a sentence that names file and line in `error`. */
bool profile_read_text(struct profile *profile, FILE *file, const char *path, char *error,
                       size_t size);

/** Reads a whole text as a number within bounds. */
bool profile_number(const char *text, unsigned long least, unsigned long most,
                    unsigned long *value);

#endif
