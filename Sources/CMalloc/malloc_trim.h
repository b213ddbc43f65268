// Extension in <malloc.h> of glibc that is missing in Swift's Glibc module.
#pragma once
#include <stdlib.h>

#ifdef __GLIBC__
/// Return free memory to the system, except `pad` bytes at the end of the heap; 1 if any was returned.
extern int malloc_trim(size_t pad);
#endif
