"""What an upgrade of the kubelet changes: both releases decide about the same node, and each difference is explained."""
