/*
 * NVIDIA's Multi-Process Service: kernels of several processes run at the same time.
 */
#ifndef KS_MPS_H
#define KS_MPS_H

/* Says so where a server of it is found: who holds the token then does not have the GPU alone. */
void ks_mps_warn(void);

#endif
