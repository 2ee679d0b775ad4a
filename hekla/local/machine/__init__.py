"""What the programs of all local clusters on one machine share: files, processes, certificates, and
which directories pods must not see."""
