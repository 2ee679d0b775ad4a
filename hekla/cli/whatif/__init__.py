"""What questions of the kind "what if" need beyond the pure part (`hekla.simulator.whatif`): the
policies of files, the pods that the job controller would make, and words."""
