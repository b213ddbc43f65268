#ifndef TIDEMARK_API_DOCUMENT_H
#define TIDEMARK_API_DOCUMENT_H

#include <stddef.h>

/// Proto/openapi.yaml at compile time, in UTF-8.
const void *_Nonnull tm_api_document(void);
/// Size of the document in bytes.
size_t tm_api_document_size(void);

#endif
