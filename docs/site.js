// Search runs in a worker, which browsers do not start for pages from a disk, and so the theme hides it there.
if (location.protocol === 'file:') {
  const note = document.createElement('small');
  note.id = 'no-search';
  note.textContent = 'search needs a server: make site';
  document.querySelector('.md-header__inner').append(note);
  document.querySelectorAll('label[for=__search]').forEach(label => label.remove());
}
