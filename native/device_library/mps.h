/*
 * NVIDIA's Multi-Process Service: kernels of several processes run at the same time.
 */
#ifndef KS_MPS_H
#define KS_MPS_H

/* Prints a debug line if a server is found: what ends one of its clients ends all of them. */
void ks_mps_warn(void);

#endif
