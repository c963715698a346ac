/* A kernel that takes as long as it is told to. */
#ifndef SPIN_PTX_H
#define SPIN_PTX_H

/* kubeshare_spin_us(u32 microseconds): reads the global timer until that much has passed. */
static const char spin_ptx[] = ".version 6.0\n"
                               ".target sm_50\n"
                               ".address_size 64\n"
                               ".visible .entry kubeshare_spin_us(.param .u32 microseconds)\n"
                               "{\n"
                               "    .reg .pred %p;\n"
                               "    .reg .b32 %us;\n"
                               "    .reg .b64 %start, %now, %ns;\n"
                               "    ld.param.u32 %us, [microseconds];\n"
                               "    mul.wide.u32 %ns, %us, 1000;\n"
                               "    mov.u64 %start, %globaltimer;\n"
                               "again:\n"
                               "    mov.u64 %now, %globaltimer;\n"
                               "    sub.u64 %now, %now, %start;\n"
                               "    setp.lt.u64 %p, %now, %ns;\n"
                               "    @%p bra again;\n"
                               "    ret;\n"
                               "}\n";

#endif
