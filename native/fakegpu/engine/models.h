/* What is known of models, and of the machines that usually have them. */
#ifndef FAKEGPU_MODELS_H
#define FAKEGPU_MODELS_H

#include "profile.h"

/** Takes a model by its key for the GPUs from `first` to before `end`; false when unknown. */
bool profile_use_model(struct profile *profile, const char *key, unsigned first, unsigned end);

/** One GPU of the first model. */
void profile_use_defaults(struct profile *profile);

/** Joins the GPUs as in the machines that are usual for the model and the count. */
void profile_use_usual_topology(struct profile *profile);

/** Says how two GPUs are joined, both ways. */
void profile_set_pair(struct profile *profile, unsigned a, unsigned b, enum path path,
                      uint8_t nvlinks);

#endif
