"""What the lab builds once and keeps: container images and Kubernetes' programs."""
