"""Network QoS: offline pods share a bandwidth that is low while online pods send much, and high
otherwise.  Reference: agent 6.7 and 9; docs/decisions/0389."""
