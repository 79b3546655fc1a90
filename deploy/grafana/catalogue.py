"""All dashboards, in the order in which they are listed."""

from deploy.grafana import fairness, hosts, occupancy, pyramid, queue, services

BOARDS = (pyramid.BOARD, fairness.BOARD, queue.BOARD, occupancy.BOARD, hosts.BOARD, services.BOARD)
