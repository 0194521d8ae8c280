from .root_mirror import RootMirror as RootMirror
