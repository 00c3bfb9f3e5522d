// Shows the OpenAPI document; a file of its own, since the CSP allows no inline script.
const place = document.getElementById("swagger-ui");
SwaggerUIBundle({
  url: place.dataset.schema,
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
  layout: "BaseLayout",
  requestInterceptor: (request) => {
    const address = new URL(request.url, document.baseURI);
    if (request.method === "POST" && address.origin === location.origin) {
      request.headers["X-CSRFToken"] = place.dataset.csrf;
    }
    return request;
  },
});
