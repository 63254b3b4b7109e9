"""The planner: where a graph's nodes run. Nothing here touches a device."""
