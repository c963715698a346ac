"""The binpack policy of Alibaba's gpushare."""
