// Search runs in a worker, which browsers do not start for pages from a disk.
if (location.protocol === 'file:') {
  const field = document.querySelector('[data-md-component=search-query]');
  if (field) { field.placeholder = 'search needs a server: make site'; field.disabled = true; }
}
