// What <malloc.h> of glibc has beside C's functions, which Swift's own module of glibc leaves out.
#pragma once
#include <stdlib.h>

#ifdef __GLIBC__
/// Gives free memory back to the system, but for `pad` bytes at the end of the heap; 1 if there was some.
extern int malloc_trim(size_t pad);
#endif
