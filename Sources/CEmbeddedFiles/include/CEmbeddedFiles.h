#ifndef TIDEMARK_EMBEDDED_FILES_H
#define TIDEMARK_EMBEDDED_FILES_H

#include <stddef.h>

/// A file of the repository at compile time, in UTF-8.
typedef struct {
  /// Its name for the program, such as `sdk/tidemark.js`.
  const char *_Nonnull name;
  const void *_Nonnull start;
  size_t count;
} tm_file;

/// All files.
///
/// Sets `count` to their number.
const tm_file *_Nonnull tm_files(size_t *_Nonnull count);

/// Compress bytes as gzip (RFC 1952).
///
/// Returns the number of bytes written; 0: they do not fit, or there is no memory.
size_t tm_gzip(const void *_Nonnull start, size_t count, void *_Nonnull output, size_t capacity);

#endif
