"""Frees the memory of `MemoryStore`s, of which tests make thousands."""


def delete_everything(store):
    for name in list(store.list_directories("")):
        store.delete_directory(name)
    for file in [*store.list(""), *store.list_hidden("")]:
        store.delete(file.path)
