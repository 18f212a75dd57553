/* Where a model's folder is that a user has not named. */
#include "model_folder.h"

#include <stdio.h>
#include <stdlib.h>

bool model_folder(const char *given, char *folder, size_t folder_size, char *reason,
                  size_t reason_size)
{
    static const char name[] = "libmha-models/all-MiniLM-L6-v2";
    const char *const cache = getenv("XDG_CACHE_HOME"), *const home = getenv("HOME");
    char config_json[4112];
    int length = 0;
    if (given)
        length = snprintf(folder, folder_size, "%s", given);
    else if (cache && *cache)
        length = snprintf(folder, folder_size, "%s/%s", cache, name);
    else
        length = snprintf(folder, folder_size, "%s/.cache/%s", home ? home : "", name);
    if (length < 0 || (size_t)length >= folder_size) {
        snprintf(reason, reason_size, "the path of the model's folder is too long");
        return false;
    }
    if (given)
        return true;
    snprintf(config_json, sizeof config_json, "%s/config.json", folder);
    FILE *const file = fopen(config_json, "rb");
    if (file)
        fclose(file);
    else
        snprintf(reason, reason_size,
                 "needs the model all-MiniLM-L6-v2: run examples/sentence-embedding/fetch-model, "
                 "or say --model DIR");
    return file;
}
