"""The volumes of pods, as directories of this machine."""
