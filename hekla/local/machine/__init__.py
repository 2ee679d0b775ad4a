"""What the programs of local clusters on one machine share: files, processes, certificates, and
what pods may not see."""
