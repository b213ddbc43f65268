// clang accepts C23's #embed in every version of C, with a warning about an extension.
#pragma clang diagnostic ignored "-Wc23-extensions"
#include "CAPIDocument.h"

// C23's #embed (clang 19, Swift 6.2). SwiftPM's .embedInCode makes an array literal, which compiles for 20 to 40 s.
static const unsigned char document[] = {
#embed "../../Proto/openapi.yaml"
};

const void *tm_api_document(void) { return document; }
size_t tm_api_document_size(void) { return sizeof document; }
