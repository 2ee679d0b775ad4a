"""HorizontalPodAutoscalers: as many replicas as what the pods use asks for."""
