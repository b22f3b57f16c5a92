// Builds the precompiled header that the tests share.
