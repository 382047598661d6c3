"""The client of API servers, kubelets and exporters: kubeconfig, credentials, requests, lists and watches."""
