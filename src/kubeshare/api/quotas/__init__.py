"""Quotas of namespaces: ResourceQuotas and GPUQuotas."""
