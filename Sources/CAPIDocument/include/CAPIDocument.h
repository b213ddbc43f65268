#ifndef TIDEMARK_API_DOCUMENT_H
#define TIDEMARK_API_DOCUMENT_H

#include <stddef.h>

/// The bytes of Proto/openapi.yaml, UTF-8, as they were when this was compiled.
const void *_Nonnull tm_api_document(void);
/// How many there are.
size_t tm_api_document_size(void);

#endif
