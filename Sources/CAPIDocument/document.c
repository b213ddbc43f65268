// C23's #embed, which clang takes in every C: said to be an extension otherwise.
#pragma clang diagnostic ignored "-Wc23-extensions"
#include "CAPIDocument.h"

// C23's #embed (clang 19, Swift 6.2). SwiftPM's own .embedInCode makes an array literal of it, which takes the compiler 20 to 40 s.
static const unsigned char document[] = {
#embed "../../Proto/openapi.yaml"
};

const void *tm_api_document(void) { return document; }
size_t tm_api_document_size(void) { return sizeof document; }
