#ifndef TIDEMARK_EMBEDDED_FILES_H
#define TIDEMARK_EMBEDDED_FILES_H

#include <stddef.h>

/// A file of the repository at compile time, in UTF-8.
typedef struct {
  const void *_Nonnull start;
  size_t count;
} tm_bytes;

/// Proto/openapi.yaml.
tm_bytes tm_api_document(void);
/// SDK/js/tidemark.js.
tm_bytes tm_sdk_module(void);
/// SDK/js/tidemark.d.ts.
tm_bytes tm_sdk_types(void);

/// Compress bytes as gzip (RFC 1952).
///
/// Returns the number of bytes written; 0: they do not fit, or there is no memory.
size_t tm_gzip(tm_bytes input, void *_Nonnull output, size_t capacity);

#endif
