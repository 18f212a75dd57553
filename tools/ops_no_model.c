/* SentenceEmbedding, where what its tokenizer needs was not there at the build. */
#include "ops.h"

void ops_sentence_embedding(check *self)
{
    check_skip(self, "this program was built without libutf8proc-dev, which the model's tokenizer "
                     "needs");
}
