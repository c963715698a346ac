/*
 * The variables of a module: what PTX declares in .global and .const. Other
 * images are not read.
 */
#ifndef FAKEGPU_VARIABLES_H
#define FAKEGPU_VARIABLES_H

#include "driver.h"

struct variable;

/** What an image declares; NULL: nothing, or it is no PTX. */
struct variable *variables_read(const void *image);

/** Gives a variable its memory, in the current context, when it is first asked for. */
CUresult variable_find(struct variable *variables, const char *name, CUdeviceptr *pointer,
                       size_t *bytes);

void variables_free(struct variable *variables);

#endif
